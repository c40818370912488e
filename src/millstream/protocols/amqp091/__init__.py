"""AMQP 0-9-1, as RabbitMQ and its clients speak it."""
