"""The softmax reads the embedding's weights, and has no others but a bias."""

import keras
import numpy as np

from tf_placer.workloads.tied_softmax import TiedSoftmax


def test_probabilities_are_those_of_the_embedding():
    embedding = keras.layers.Embedding(3, 2)
    embedding.build(None)
    embedding.set_weights([np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], np.float32)])
    layer = TiedSoftmax(embedding, name="tied")
    # Logits are 0, log 2 and 2 log 3: shares of 1 + 2 + 9.
    given = np.log(np.array([[2.0, 3.0]], np.float32))
    np.testing.assert_allclose(layer(given), [[1 / 12, 2 / 12, 9 / 12]], rtol=1e-6)
    model = keras.Sequential([embedding, layer])
    assert [tuple(weight.shape) for weight in model.trainable_variables] == [(3, 2), (3,)]
