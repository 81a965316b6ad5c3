"""What of the papers can be run, what it needs, and what cannot be run here and why."""

from __future__ import annotations

from anyloss.studies.reproduce.text import columns

# Name, what it is, what it needs, about how long on one core.
HERE = (
    ("table1", "AnyLoss, Table 1: range of L", "nothing", "a second"),
    ("table6", "AnyLoss, Table 6: #1, #3, SLP and networks", "nothing", "3 minutes"),
    ("table7", "AnyLoss, Table 7, SLP: SMOTE, undersampling, #1, #3", "nothing", "1 minute"),
    ("table9", "AnyLoss, Table 9, SLP: learning curves, #1, #3", "nothing", "20 s"),
    ("table17", "AnyLoss, Table 17, SLP: #1 random, #3 breast cancer", "nothing", "20 s"),
    ("table17", "AnyLoss, Table 17, SLP: #4 diabetes", "--data, diabetes_100k", "3 minutes"),
    ("table18", "AnyLoss, Table 18, networks, clean: #1, #3", "nothing", "1 minute"),
    (
        "table15",
        "AnyLoss, Tables 3, 4, 15, Figure 4, SLP: the rebuilt sets",
        "--data, index.csv and paper/",
        "5 minutes",
    ),
    (
        "table16",
        "AnyLoss, Tables 3, 4, 16, Figure 4, networks, clean: the rebuilt sets",
        "--data, index.csv and paper/",
        "10 minutes",
    ),
    ("table10", "AnyLoss, Table 10: a residual network on MNIST", "--data, images/", "4 minutes"),
    (
        "gap-table1",
        "Bridging the Gap, Table 1: three of four sets",
        "--data, tabular/",
        "8 minutes",
    ),
    ("gap-table2", "Bridging the Gap, Table 2: 5,000 images", "--data, images/", "4 minutes"),
    ("gap-table4", "Bridging the Gap, Table 4: F-beta", "--data, tabular/", "3 minutes"),
    ("surrogate-paths", "surrogate F-beta: gradient paths, with a picture", "nothing", "20 s"),
    ("surrogate-images", "surrogate F-beta: imbalanced images", "--data, images/", "3 minutes"),
)
LATER = (
    "AnyLoss, Table 8: learning time",
    "AnyLoss, Tables 12 and 13, Figures 2, 3 and 5: the choice of L",
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


def listing() -> str:
    """The list as text."""
    return "\n".join(
        [
            "To run: anyloss reproduce NAME",
            "",
            columns(("name", "what", "needs", "about how long"), HERE),
            "",
            "Still to be written:",
            "",
            *(f"  {line}" for line in LATER),
            "",
            "Cannot be run here:",
            "",
            columns(("what", "why"), NEVER),
        ]
    )
