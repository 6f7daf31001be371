"""Settings of the learned list scheduler: wrong ones end in a line that names the field."""

import pytest

from tf_placer.agents.learned_list.config import LearnedListConfig
from tf_placer.errors import InputError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_groups", 0),
        ("passes", 0),
        ("rules", 1),
        ("elites", 0),
        ("spread", 0.0),
        ("spread", float("inf")),
        ("step", 0.0),
        ("step", 1.5),
        ("spread_step", -0.1),
        ("least_spread", -1.0),
        ("rules", 2.5),
        ("weights", 3),
    ],
)
def test_wrong_settings_are_named(field, value):
    with pytest.raises(InputError, match=field):
        LearnedListConfig(**{field: value})
