"""The timer log and the timer wheel, read; `verify.timer` judges them."""
