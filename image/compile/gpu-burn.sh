# It reads its kernel, compare.fatbin, from where it is started: hence the wrapper.
make -C "$SOURCE" CUDAPATH="$CUDA_HOME" COMPUTE="$OLDEST" LDFLAGS="-L$CUDA_HOME/lib64/stubs"
install -D -m 755 -t /opt/gpu-burn "$SOURCE/gpu_burn"
install -m 644 -t /opt/gpu-burn "$SOURCE"/compare.*
printf '#!/bin/sh\ncd /opt/gpu-burn && exec ./gpu_burn "$@"\n' > /usr/local/bin/gpu_burn
chmod 755 /usr/local/bin/gpu_burn
