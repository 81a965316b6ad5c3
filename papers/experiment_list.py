"""The list of the papers' experiments: what each needs, and what cannot be run here and why."""

from __future__ import annotations

from pathlib import Path

from papers.text_tables import text_table

FOUR = "nothing for #1 and #3; --data for #4"  # which takes about ten times as long
MANY = "--data, index.csv and paper/"
TABULAR, IMAGES = "--data, tabular/ and paper/", "--data, images/ and paper/"
# Name, what it is, what it needs, and the approximate time on one core.
AVAILABLE = (
    ("table1", "AnyLoss, Table 1: range of L", "nothing", "a second"),
    ("table6", "AnyLoss, Table 6: SLP and networks", FOUR, "2 minutes"),
    ("table7", "AnyLoss, Table 7, SLP: SMOTE and undersampling", FOUR, "2 minutes"),
    ("table8", "AnyLoss, Table 8: learning time", FOUR, "1 minute"),
    ("table9", "AnyLoss, Table 9, equation 14, SLP: achievement rate", FOUR, "20 s"),
    ("table10", "AnyLoss, Table 10: a residual network on MNIST", IMAGES, "1 minute"),
    ("table12", "AnyLoss, Table 12, networks, clean: the choice of L", FOUR, "2 minutes"),
    ("table13", "AnyLoss, Table 13, networks, clean: the choice of L", MANY, "15 minutes"),
    ("table15", "AnyLoss, Tables 3, 4, 15, SLP: the rebuilt data sets", MANY, "5 minutes"),
    ("table16", "AnyLoss, Tables 3, 4, 16, networks, clean", MANY, "10 minutes"),
    ("table17", "AnyLoss, Table 17, SLP: all losses", FOUR, "20 s"),
    ("table18", "AnyLoss, Table 18, networks, clean and as published", FOUR, "4 minutes"),
    ("figure2", "AnyLoss, Figure 2: the soft decision", "nothing", "a second"),
    ("figure3", "AnyLoss, Figure 3: learning curves by L", "nothing", "5 s"),
    ("figure4", "AnyLoss, Figure 4, from table15 and table16", MANY, "15 minutes"),
    ("figure5", "AnyLoss, Figure 5: learning curves by loss", FOUR, "20 s"),
    ("gap-table1", "Bridging the Gap, Table 1: three of the data sets", TABULAR, "5 minutes"),
    ("gap-table2", "Bridging the Gap, Table 2: 5,000 images", IMAGES, "3 minutes"),
    ("gap-table4", "Bridging the Gap, Table 4: F-beta", TABULAR, "3 minutes"),
    ("surrogate-paths", "surrogate F-beta: gradient paths, with a figure", "nothing", "20 s"),
    ("surrogate-images", "surrogate F-beta: imbalanced images", IMAGES, "1 minute"),
)
NOT_AVAILABLE = (
    ("AnyLoss, #2 Credit Card 2023", "568,630 rows of Kaggle are not available"),
    ("AnyLoss, 38 of the 102 data sets", "not found, or their coding is unknown"),
    ("AnyLoss, Table 11", "Huge Titanic is not available"),
    ("AnyLoss, Tables 16, 18 as published", "one network for all folds and losses, never reset"),
    ("AnyLoss, Table 10 as published", "ResNet50 takes hours without a GPU; a small one runs"),
    ("Bridging the Gap, Table 1: CocktailParty", "the data set is not available"),
    ("Bridging the Gap, Table 1: Kaggle, all rows", "15,869 of 284,807 rows are available"),
    ("Bridging the Gap, Table 2: all images", "5,000 of 50,000 training images are available"),
    ("Bridging the Gap, Table 3", "the CocktailParty graphs are not available"),
    ("Bridging the Gap, adversarial baseline", "cubic in the batch size, no public package"),
    ("Bridging the Gap, figures of the sigmoid step", "the supplement is not available"),
    ("surrogate F-beta, figures of its tables", "only the abstract is available"),
    ("MetricOpt, online F-measure", "no code is available"),
)


# The files of the data folder. Other data come with packages or are in `published.csv`.
FOLDER = (
    ("index.csv", "the data sets of AnyLoss's Table 14, one line each"),
    ("tabular/", "their rows, as NAME.csv.gz with a last column y"),
    ("images/", "mnist.npz and cifar10_subset.npz"),
    ("paper/tables.csv", "figures published in Tables 3, 4, 10, 13, 15, 16 and the gap tables"),
    ("paper/anyloss_102_scores.csv", "scores published for each of the 102 data sets"),
)


def _state(folder: Path | None, name: str) -> str:
    """Whether a file of the data folder exists."""
    if folder is None:
        return "not checked: give --data FOLDER"
    return "found" if (folder / name).exists() else f"missing: put it at {folder / name}"


def experiment_list(folder: Path | None = None) -> str:
    """The list as text, with the files that the data folder has and those that are missing."""
    files = [(name, what, _state(folder, name)) for name, what in FOLDER]
    return "\n".join(
        [
            "To run an experiment: python -m papers NAME",
            "",
            text_table(("in the data folder", "what", "state"), files),
            "",
            text_table(("name", "what", "needs", "time on one core"), AVAILABLE),
            "",
            "SLP: single-layer perceptron. Clean: every fold starts from new weights.",
            "Data sets: #1 random, #2 credit-card-2023, #3 breast-cancer, #4 diabetes.",
            "",
            "These experiments cannot be run here:",
            "",
            text_table(("what", "why"), NOT_AVAILABLE),
        ]
    )
