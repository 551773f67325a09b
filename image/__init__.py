"""The recipe of the test image: what a test VM boots (docs/test-image.md). `make image PROFILE=gpu` builds one."""
