"""Networks that put groups on devices."""

from tf_placer.placer.seq2seq import Decoded
from tf_placer.placer.seq2seq import Seq2SeqPlacer

__all__ = ["Decoded", "Seq2SeqPlacer"]
