"""Random numbers that the C++ op draws alike, so that the two can be compared."""

from __future__ import annotations

_MASK = 2**64 - 1


class RandomBits:
    """splitmix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators"): its state is one number.

    It is that of tf_placer/ops/cc/random_bits.h.

    Attributes:
      state: in [0, 2^64).
    """

    def __init__(self, state: int) -> None:
        self.state = state

    @staticmethod
    def of(seed: int, stream: int) -> RandomBits:
        """One of many independent generators of a seed: its state is what two of them, in turn, make of the numbers."""
        return RandomBits(RandomBits(RandomBits(seed & _MASK).next() ^ stream).next())

    def next(self) -> int:
        """64 bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def below(self, count: int) -> int:
        """A whole number in [0, count)."""
        return (self.next() * count) >> 64

    def chance(self, chance: int) -> bool:
        """True with probability chance / 2^32."""
        return self.next() >> 32 < chance
