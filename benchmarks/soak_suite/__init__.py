"""`./dev bench soak`: mixed load and churn, numbered messages, and samples of the broker's size."""
