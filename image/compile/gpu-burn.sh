# It reads its kernel, compare.fatbin, from where it is started: hence the wrapper.
# LDFLAGS by the environment: on make's command line it would replace what the Makefile adds.
LDFLAGS="-L$CUDA_HOME/lib64/stubs" make -C "$SOURCE" CUDAPATH="$CUDA_HOME" COMPUTE="$OLDEST"
install -D -m 755 -t /opt/gpu-burn "$SOURCE/gpu_burn"
install -m 644 -t /opt/gpu-burn "$SOURCE"/compare.*
printf '#!/bin/sh\ncd /opt/gpu-burn && exec ./gpu_burn "$@"\n' > /usr/local/bin/gpu_burn
chmod 755 /usr/local/bin/gpu_burn
