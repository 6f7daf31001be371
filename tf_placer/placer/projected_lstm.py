"""An LSTM whose inputs come multiplied by their weights."""

from __future__ import annotations

import sonnet as snt
import tensorflow as tf


class ProjectedLstm(snt.RNNCore):
    """LSTM cell (Hochreiter & Schmidhuber 1997; forget bias 1: Jozefowicz et al. 2015) without the input's product.

    gates i, f, g, o = x + W h + b;  c = sigmoid(f + 1) c + sigmoid(i) tanh(g);  h = sigmoid(o) tanh(c)

    What does not depend on the state is multiplied outside of the loop, for all steps at once, and an input that is a
    row of a small table is looked up as a product.
    """

    def __init__(self, hidden_width: int, name: str | None = None):
        """Creates the recurrent layer.

        Args:
          hidden_width: H; inputs x are [B, 4 H].
          name: module name.
        """
        super().__init__(name=name)
        self._hidden_width = hidden_width
        self._recurrent = snt.Linear(4 * hidden_width, name="recurrent")

    def __call__(self, inputs: tf.Tensor, prev_state: snt.LSTMState) -> tuple[tf.Tensor, snt.LSTMState]:
        """One step: x [B, 4 H] and the last state -> h [B, H] and the state."""
        gates = tf.split(inputs + self._recurrent(prev_state.hidden), 4, axis=1)
        cell = tf.sigmoid(gates[1] + 1.0) * prev_state.cell + tf.sigmoid(gates[0]) * tf.tanh(gates[2])
        hidden = tf.sigmoid(gates[3]) * tf.tanh(cell)
        return hidden, snt.LSTMState(hidden=hidden, cell=cell)

    def initial_state(self, batch_size: int, **kwargs: object) -> snt.LSTMState:
        """Zeros."""
        del kwargs  # Sonnet's signature
        zeros = tf.zeros([batch_size, self._hidden_width])
        return snt.LSTMState(hidden=zeros, cell=zeros)
