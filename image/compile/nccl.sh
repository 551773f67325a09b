# The library that nccl-tests runs on, with machine code for every architecture chosen: what is missing there is compiled at the
# first start in each VM, and takes minutes.
make -C "$SOURCE" -j "$(nproc)" src.build CUDA_HOME="$CUDA_HOME" NVCC_GENCODE="$GENCODE"
cp -P "$SOURCE"/build/lib/libnccl.so* /usr/local/lib/
cp "$SOURCE"/build/include/*.h /usr/local/include/
ldconfig
