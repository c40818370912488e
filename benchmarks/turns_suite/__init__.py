"""`./dev bench turns`: inputs that are as costly as the limits allow, and the longest turn of the loop each of them causes."""
