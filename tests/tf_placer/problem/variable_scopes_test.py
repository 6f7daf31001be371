"""Tests where variables belong, and what layers are called by them."""

from tf_placer.problem.layers import layer_names, variable_scopes


def found(*ops: tuple[str, str]):
    """Of (name, scope) of a variable and its readers, one after the other."""
    names, scopes = (
        [name for name, _ in ops],
        [tuple(scope.split("/")) if scope else () for _, scope in ops],
    )
    return variable_scopes({0: list(range(1, len(ops)))}, scopes, names)


def test_the_layer_of_a_variable_is_called_as_its_scope() -> None:
    result = found(("m/norm/gamma", "m/norm"), ("r", "adam"), ("r", "m_1/norm_1/inner"))
    assert result.home == {0: ("m_1", "norm_1")}
    assert result.named_by == {("m_1", "norm_1"): ("m", "norm")}


def test_a_variable_without_scope_belongs_where_it_is_read_first() -> None:
    assert found(("w", ""), ("r", ""), ("r", "tower"), ("r", "adam")).home == {0: ("tower",)}


def test_a_variable_that_nothing_with_a_scope_reads_stays_in_its_own() -> None:
    assert found(("loss/total", "loss"), ("r", "")).home == {0: ("loss",)}
    assert found(("w", "")).home == {0: ()}


def test_several_variables_of_one_name_are_of_the_layers_that_read_them() -> None:
    names = ["net/kernel", "net/kernel_1", "r", "r"]
    scopes = [("net",), ("net",), ("net_1", "dense_1"), ("net_1", "dense_1_2")]
    result = variable_scopes({0: [2], 1: [3]}, scopes, names)
    assert result.home == {0: ("net_1", "dense_1"), 1: ("net_1", "dense_1_2")}
    assert layer_names([("net_1",), *result.home.values()], result.named_by) == {
        (): (),
        ("net_1",): ("net",),
        ("net_1", "dense_1"): ("net", "dense"),
        ("net_1", "dense_1_2"): ("net", "dense_1"),
    }


def test_a_layer_that_is_called_twice_is_one() -> None:
    layers = [("f",), ("f", "dense_1"), ("f", "dense_3")]
    names = layer_names(layers, {("f", "dense_1"): ("dense",), ("f", "dense_3"): ("dense",)})
    assert names[layers[1]] == names[layers[2]] == ("f", "dense")


def test_layers_of_a_program_that_nothing_counted_keep_their_names() -> None:
    layers = [("block_1",), ("block_2",), ("block_1", "dense_1")]
    names = layer_names(layers, {("block_1", "dense_1"): ("block_1", "dense_1")})
    assert names == {(): ()} | {layer: layer for layer in layers}


def test_siblings_that_would_be_called_the_same_keep_their_names() -> None:
    layers = [("f",), ("f", "dense_1"), ("f", "einsum"), ("f", "einsum_1"), ("f", "add_1")]
    names = layer_names(layers, {("f", "dense_1"): ("dense",)})
    assert [names[layer][-1] for layer in layers] == ["f", "dense", "einsum", "einsum_1", "add"]


def test_scopes_around_a_counted_layer_keep_the_name_that_its_variables_say() -> None:
    names = layer_names(
        [("tower_1",), ("tower_1", "dense_1")], {("tower_1", "dense_1"): ("tower_1", "dense")}
    )
    assert names[("tower_1", "dense_1")] == ("tower_1", "dense")
