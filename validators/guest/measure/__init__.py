"""The measurements that no tool makes for us. Each prints what it read; what that means is judged elsewhere."""
