"""Image classification, small and plain."""
