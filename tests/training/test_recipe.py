"""Recipes: the paper's numbers, files that extend others, all faults reported at once."""

import pytest

from st3.methods import TopK
from st3.training.recipe import OptimizerRecipe, Recipe, built_in_recipes, load_recipe
from st3.training.sections import SettingsError, change, parse_changes, validate


@pytest.fixture(params=sorted(built_in_recipes()))
def name(request):
    return request.param


def test_every_built_in_recipe_is_valid_and_has_the_name_of_its_file(name):
    assert load_recipe(name).name == name


def test_every_built_in_recipe_says_what_it_is_for(name):
    assert built_in_recipes()[name].read_text().startswith("# ")


def test_the_cifar_recipe_is_the_papers():
    recipe = load_recipe("cifar")
    assert (recipe.epochs, recipe.batch_size, recipe.clip_norm, recipe.label_smoothing) == (
        160,
        128,
        3.0,
        0.0,
    )
    assert recipe.optimizer == OptimizerRecipe(name="sgd", lr=0.1, momentum=0.9, weight_decay=1e-4)
    assert recipe.rate.drops == (80, 120)
    assert (recipe.ramp.start, recipe.ramp.end) == (5, 80)


@pytest.mark.parametrize(
    ("name", "batch", "momentum"), [("imagenet", 256, 0.9), ("imagenet-code", 512, 0.875)]
)
def test_the_imagenet_recipes_are_those_of_the_paper_and_of_the_program(name, batch, momentum):
    recipe = load_recipe(name)
    assert (recipe.epochs, recipe.batch_size, recipe.label_smoothing) == (100, batch, 0.1)
    assert (recipe.optimizer.lr, recipe.optimizer.momentum) == (0.2, momentum)
    assert (recipe.rate.kind, recipe.rate.warmup) == ("cosine", 5)
    assert (recipe.ramp.start, recipe.ramp.end) == (5, 50)


def test_the_language_recipe_prunes_between_a_quarter_and_three_quarters_of_training():
    recipe = load_recipe("language")
    assert (recipe.ramp.start / recipe.epochs, recipe.ramp.end / recipe.epochs) == (0.25, 0.75)
    assert (recipe.optimizer.name, recipe.optimizer.beta2, recipe.optimizer.weight_decay) == (
        "adamw",
        0.95,
        0.1,
    )
    assert (recipe.rate.kind, recipe.clip_norm) == ("cosine", 1.0)


def test_the_recipe_of_topk_is_its_authors():
    recipe = load_recipe("language-topk")
    optimizer, rate = recipe.optimizer, recipe.rate
    assert (optimizer.momentum, optimizer.beta2, optimizer.epsilon, optimizer.weight_decay) == (
        0.9,
        0.95,
        0.1,
        0.1,
    )
    assert (recipe.clip_norm, recipe.gradient_rms) == (None, 1.0)
    assert (rate.kind, rate.warmup / recipe.epochs, rate.by_step, rate.by_density) == (
        "linear",
        0.01,
        True,
        True,
    )
    assert optimizer.lr * 64**0.5 == pytest.approx(1.28e-2)
    assert (recipe.ramp.start / recipe.epochs, recipe.ramp.end / recipe.epochs) == TopK.usual_times


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"optimizer.epsilon": 0.1}, "epsilon=0.1 needs name='adamw', got name='sgd'"),
        ({"optimizer.beta2": 0.95}, "beta2=0.95 needs name='adamw', got name='sgd'"),
        (
            {"gradient_rms": 1.0},
            "clip_norm=3 and gradient_rms=1 scale the same gradients: set one of them to none",
        ),
    ],
)
def test_settings_of_another_optimizer_or_a_second_limit_are_refused(changes, complaint):
    values = load_recipe("cifar").model_dump()
    for key, value in changes.items():
        change(values, key, value)
    with pytest.raises(SettingsError, match=complaint):
        validate(Recipe, values, "recipe")


@pytest.mark.parametrize(
    ("name", "sparsity", "decay"),
    [
        ("imagenet", 0.0, 1e-4),
        ("imagenet", 0.95, 1e-4),
        ("imagenet", 0.965, 1e-5),
        ("imagenet", 0.98, 1e-5),
        ("imagenet", 0.99, 0.0),
        ("imagenet-mobilenet", 0.8, 1e-4),
        ("imagenet-mobilenet", 0.89, 1e-5),
        ("imagenet-mobilenet", 0.95, 1e-5),
        ("imagenet-code", 0.99, 5e-5),
        ("cifar", 0.99, 1e-4),
    ],
)
def test_the_weight_decay_falls_with_the_sparsity_as_the_papers_appendix_says(name, sparsity, decay):
    assert load_recipe(name).optimizer.decay_at(sparsity) == decay


def test_a_recipe_scales_as_a_whole():
    recipe = load_recipe("cifar").scaled_to(8)
    assert (recipe.epochs, recipe.rate.drops, recipe.ramp.start, recipe.ramp.end) == (8, (4, 6), 0.25, 4)
    assert load_recipe("cifar").scaled_to(640).ramp.end == 320


def test_a_file_extends_another_and_states_only_what_differs(tmp_path):
    (tmp_path / "long.toml").write_text('base = "cifar"\nepochs = 200\n[optimizer]\nlr = 0.05\n')
    (tmp_path / "smooth.toml").write_text('base = "long.toml"\nlabel_smoothing = 0.1\n')
    recipe = load_recipe(tmp_path / "smooth.toml")
    assert (recipe.name, recipe.epochs, recipe.optimizer.lr) == ("smooth", 200, 0.05)
    assert (recipe.optimizer.weight_decay, recipe.label_smoothing) == (1e-4, 0.1)


def test_another_kind_of_rate_replaces_the_whole_table(tmp_path):
    (tmp_path / "own.toml").write_text('base = "cifar"\n[rate]\nwarmup = 2\nkind = "cosine"\n')
    rate = load_recipe(tmp_path / "own.toml").rate
    assert (rate.kind, rate.warmup) == ("cosine", 2)


def test_an_empty_table_changes_nothing(tmp_path):
    (tmp_path / "own.toml").write_text('base = "cifar"\n[optimizer]\n')
    assert load_recipe(tmp_path / "own.toml").optimizer == load_recipe("cifar").optimizer


def test_a_cycle_of_bases_is_refused(tmp_path):
    (tmp_path / "a.toml").write_text('base = "b.toml"')
    (tmp_path / "b.toml").write_text('base = "a.toml"')
    with pytest.raises(SettingsError, match="its bases form a cycle: "):
        load_recipe(tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("epochs = ", "not a TOML file"),
        ("base = 3", "base must be the name"),
        ('base = "cifr"', "unknown recipe 'cifr'; did you mean 'cifar'?"),
        (None, "cannot read the file: No such file"),
    ],
)
def test_for_a_file_that_cannot_be_used_the_reason_is_given(tmp_path, content, complaint):
    path = tmp_path / "own.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingsError) as error:
        load_recipe(path)
    assert complaint in str(error.value)


def change_recipe(*changes):
    values = load_recipe("cifar").model_dump()
    for key, value in parse_changes(changes).items():
        change(values, key, value)
    return validate(Recipe, values, "recipe")


def test_all_faults_are_reported_at_once_with_suggestions_for_misspelt_keys():
    with pytest.raises(SettingsError) as error:
        change_recipe("optimizer.lrr=3", "rate.drop=[1]", "epochs=-1", "batch_size=many")
    assert len(error.value.faults) == 4
    assert (
        "unknown key 'optimizer.lrr'; did you mean 'lr'? (known: beta2, epsilon, lr, momentum, name"
        in str(error.value)
    )
    assert "unknown key 'rate.drop'; did you mean 'drops'?" in str(error.value)
    assert "epochs: input should be greater than or equal to 1, got -1" in str(error.value)
    assert "batch_size" in str(error.value)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (["epochs=100"], "the rate changes at epoch 120, but training ends with epoch 100"),
        (["epochs=60", "rate.kind=constant"], "the ramp ends at epoch 80, but training ends with epoch 60"),
        (["ramp.start=80"], "the ramp starts at epoch 80 and ends at 80"),
        (["rate.drops=[120, 80]"], "must rise, got [120.0, 80.0]"),
        (["optimizer.nesterov=true", "optimizer.momentum=0"], "nesterov=true needs"),
        (["optimizer.weight_decay_from=[[0.9, 1e-5], [0.8, 1e-6]]"], "the sparsities must rise"),
        (["rate.kind=cosin"], "cosin"),
        (["optimizer.lr=nan"], "optimizer.lr"),
        (["optimizer.lr.x=1"], "lr is a value (0.1), not a table"),
        (["lr"], "'lr' is not of the form key=value"),
    ],
)
def test_contradictory_settings_are_refused(changes, complaint):
    with pytest.raises(SettingsError) as error:
        change_recipe(*changes)
    assert complaint in str(error.value)


def test_values_are_toml_or_plain_strings():
    texts = ["a=1", "b=0.5", "c=true", "d=[1, 2]", 'e="x"', "f=resnet20", "g=none", "h=3x32=x"]
    assert [*parse_changes(texts).values()] == [1, 0.5, True, [1, 2], "x", "resnet20", None, "3x32=x"]


def test_a_recipe_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        load_recipe("cifar").epochs = 3
