"""`./dev bench amqp091`: Millstream and RabbitMQ through the same AMQP 0.9.1 scenarios."""
