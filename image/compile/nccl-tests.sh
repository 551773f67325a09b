# Without MPI: one process drives all GPUs of a machine.
make -C "$SOURCE" -j "$(nproc)" MPI=0 CUDA_HOME="$CUDA_HOME" NCCL_HOME=/usr/local NVCC_GENCODE="$GENCODE"
install -m 755 "$SOURCE"/build/*_perf /usr/local/bin/
