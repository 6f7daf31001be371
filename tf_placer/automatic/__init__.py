"""One call: a ``tf.function`` that finds and keeps its own placement."""
