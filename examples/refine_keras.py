"""Keras: ten epochs of cross-entropy, then ten for F1, and the better weights at the end.

The backend is the one that KERAS_BACKEND names.
"""

import keras
import numpy as np

from anyloss.keras import RefineCallback


def data(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    y = (generator.random(rows) < 0.1).astype("float32")
    return (generator.normal(size=(rows, 4)) + y[:, None]).astype("float32"), y


def main() -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    callback = RefineCallback(
        "f1",
        validation_data=data(500, 1),
        start_loss=keras.losses.BinaryCrossentropy(),
        at_epoch=10,
    )
    model.compile(keras.optimizers.Adam(0.02), loss=callback.loss)
    model.fit(*data(1000, 0), batch_size=250, epochs=20, callbacks=[callback], verbose=0)
    print(f"F1 before: {callback.start_score:.4f}, after: {callback.end_score:.4f}")


if __name__ == "__main__":
    main()
