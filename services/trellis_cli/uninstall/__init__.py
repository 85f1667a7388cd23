"""``trellis uninstall --remove-finalizers``."""
