"""Networks that put groups on devices."""

from tf_placer.placer.device_scorer import DeviceChoices
from tf_placer.placer.device_scorer import DeviceScorer
from tf_placer.placer.device_scorer import EmbeddedDevices
from tf_placer.placer.projected_lstm import ProjectedLstm
from tf_placer.placer.segment_attention import MODULATIONS
from tf_placer.placer.segment_attention import SegmentAttention
from tf_placer.placer.segment_seq2seq import SegmentSeq2SeqPlacer
from tf_placer.placer.seq2seq import Decoded
from tf_placer.placer.seq2seq import Seq2SeqPlacer

__all__ = [
    "MODULATIONS",
    "Decoded",
    "DeviceChoices",
    "DeviceScorer",
    "EmbeddedDevices",
    "ProjectedLstm",
    "SegmentAttention",
    "SegmentSeq2SeqPlacer",
    "Seq2SeqPlacer",
]
