"""Every unit in the class of what is legal for it."""

import numpy as np

from tf_placer.agents.legality import legality_classes


def test_classes_by_hand():
    allowed = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 1], [1, 1, 1], [0, 1, 0], [1, 1, 0], [1, 1, 1]], bool)
    classes = legality_classes(allowed)
    # The one of three units first; units 2 and 4 have one device.
    assert classes.legal.tolist() == [[True, True, True], [True, True, False]]
    assert classes.class_of_unit.tolist() == [1, 0, -1, 0, -1, 1, 0]
    assert classes.units_of_class.tolist() == [3, 2]
    assert classes.first_legal[[2, 4]].tolist() == [2, 1]


def test_random_tables():
    for seed in range(20):
        generator = np.random.default_rng(seed)
        allowed = generator.random((30, 4)) < 0.5
        allowed[np.arange(30), generator.integers(0, 4, 30)] = True
        classes = legality_classes(allowed)
        for unit, row in enumerate(allowed):
            number = classes.class_of_unit[unit]
            if row.sum() == 1:
                assert number == -1 and row[classes.first_legal[unit]]
            else:
                assert (classes.legal[number] == row).all()
        assert len(np.unique(classes.legal, axis=0)) == len(classes.legal)


def test_where_nothing_is_to_decide_one_class_without_units_is_left():
    classes = legality_classes(np.array([[True, False], [False, True]]))
    assert classes.legal.tolist() == [[True, True]] and classes.units_of_class.tolist() == [0]
    assert classes.class_of_unit.tolist() == [-1, -1] and classes.first_legal.tolist() == [0, 1]
