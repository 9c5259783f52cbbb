"""Pretrained encoders of texts and images, by name or from local files."""
