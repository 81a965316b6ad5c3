"""What of the papers can be run, what it needs, and what cannot be run here and why."""

from __future__ import annotations

from pathlib import Path

from papers.text import columns

FOUR = "nothing for #1 and #3; --data for #4"  # which takes some ten times as long
MANY = "--data, index.csv and paper/"
TABULAR, PICTURES = "--data, tabular/ and paper/", "--data, images/ and paper/"
# Name, what it is, what it needs, about how long on one core.
HERE = (
    ("table1", "AnyLoss, Table 1: range of L", "nothing", "a second"),
    ("table6", "AnyLoss, Table 6: SLP and networks", FOUR, "2 minutes"),
    ("table7", "AnyLoss, Table 7, SLP: SMOTE and undersampling", FOUR, "2 minutes"),
    ("table8", "AnyLoss, Table 8: learning time", FOUR, "1 minute"),
    ("table9", "AnyLoss, Table 9, equation 14, SLP: achievement rate", FOUR, "20 s"),
    ("table10", "AnyLoss, Table 10: a residual network on MNIST", PICTURES, "1 minute"),
    ("table12", "AnyLoss, Table 12, networks, clean: the choice of L", FOUR, "2 minutes"),
    ("table13", "AnyLoss, Table 13, networks, clean: the choice of L", MANY, "15 minutes"),
    ("table15", "AnyLoss, Tables 3, 4, 15, SLP: the rebuilt sets", MANY, "5 minutes"),
    ("table16", "AnyLoss, Tables 3, 4, 16, networks, clean", MANY, "10 minutes"),
    ("table17", "AnyLoss, Table 17, SLP: all losses", FOUR, "20 s"),
    ("table18", "AnyLoss, Table 18, networks, clean and not", FOUR, "4 minutes"),
    ("figure2", "AnyLoss, Figure 2: the soft decision", "nothing", "a second"),
    ("figure3", "AnyLoss, Figure 3: learning curves by L", "nothing", "5 s"),
    ("figure4", "AnyLoss, Figure 4, of table15 and table16", MANY, "15 minutes"),
    ("figure5", "AnyLoss, Figure 5: learning curves by loss", FOUR, "20 s"),
    ("gap-table1", "Bridging the Gap, Table 1: three of the sets", TABULAR, "5 minutes"),
    ("gap-table2", "Bridging the Gap, Table 2: 5,000 images", PICTURES, "3 minutes"),
    ("gap-table4", "Bridging the Gap, Table 4: F-beta", TABULAR, "3 minutes"),
    ("surrogate-paths", "surrogate F-beta: gradient paths, with a picture", "nothing", "20 s"),
    ("surrogate-images", "surrogate F-beta: imbalanced images", PICTURES, "1 minute"),
)
NEVER = (
    ("AnyLoss, #2 Credit Card 2023", "568,630 rows of Kaggle are not at hand"),
    ("AnyLoss, 38 of the 102 sets", "not found, or their coding is unknown"),
    ("AnyLoss, Table 11", "Huge Titanic is not at hand"),
    ("AnyLoss, Tables 16, 18 as published", "one network served all folds and losses, not reset"),
    ("AnyLoss, Table 10 as published", "ResNet50 takes hours without a GPU: a small one runs"),
    ("Bridging the Gap, Table 1: CocktailParty", "the data set is not at hand"),
    ("Bridging the Gap, Table 1: Kaggle, all rows", "15,869 of 284,807 rows are at hand"),
    ("Bridging the Gap, Table 2: all images", "5,000 of 50,000 training images are at hand"),
    ("Bridging the Gap, Table 3", "the CocktailParty graphs are not at hand"),
    ("Bridging the Gap, adversarial baseline", "cubic in the batch, no public package to run"),
    ("Bridging the Gap, figures of the sigmoid step", "its supplement is not at hand"),
    ("surrogate F-beta, figures of its tables", "only its abstract is at hand"),
    ("MetricOpt, online F-measure", "no code at hand; never imitated"),
)


# What the folder of --data holds, beside what comes with packages or is written in `published.csv`.
FOLDER = (
    ("index.csv", "the data sets of AnyLoss's Table 14, one line each"),
    ("tabular/", "their rows, as NAME.csv.gz with a last column y"),
    ("images/", "mnist.npz and cifar10_subset.npz"),
    ("paper/tables.csv", "figures published in Tables 3, 4, 10, 13, 15, 16 and the gap tables"),
    ("paper/anyloss_102_scores.csv", "scores published for each of the 102 sets"),
)


def _found(folder: Path | None, name: str) -> str:
    if folder is None:
        return "not looked for: give --data FOLDER"
    return "found" if (folder / name).exists() else f"missing: put it at {folder / name}"


def listing(folder: Path | None = None) -> str:
    """The list as text, with what of the data folder is there and where the rest goes."""
    holds = [(name, what, _found(folder, name)) for name, what in FOLDER]
    return "\n".join(
        [
            "To run: python -m papers NAME",
            "",
            columns(("in the data folder", "what", "state"), holds),
            "",
            columns(("name", "what", "needs", "about how long"), HERE),
            "",
            "Cannot be run here:",
            "",
            columns(("what", "why"), NEVER),
        ]
    )
