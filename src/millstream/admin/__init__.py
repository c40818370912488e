"""What an operator asks of a running broker: operations with checked requests and answers, without a transport."""
