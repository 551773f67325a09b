# NVIDIA's open kernel modules for the image's kernel: the package's own script builds for the kernel that runs, which is the
# builder's. Ends with an error when the module is of another version than the one chosen.
dkms autoinstall -k "$KERNEL"
version=$(modinfo -k "$KERNEL" -F version nvidia)
if [ "$version" != "$DRIVER" ]; then
  echo "the nvidia module for $KERNEL is of version ${version:-none}, not $DRIVER" >&2
  exit 1
fi
modinfo -k "$KERNEL" -F license nvidia | grep -q MIT # the open ones say "Dual MIT/GPL"
