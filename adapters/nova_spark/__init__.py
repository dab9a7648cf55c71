"""Places and replaces joins in Apache Spark by Nova's plans."""
