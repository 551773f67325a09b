cmake -S "$SOURCE" -B "$SOURCE/build" -DCMAKE_CUDA_COMPILER="$CUDA_HOME/bin/nvcc" -DCMAKE_CUDA_ARCHITECTURES="$ARCHITECTURES"
cmake --build "$SOURCE/build" --parallel "$(nproc)"
install -m 755 "$SOURCE/build/nvbandwidth" /usr/local/bin/
