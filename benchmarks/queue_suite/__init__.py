"""`./dev bench queues`: durable publishing, consuming, replay, restart and memory, beside JetStream and RabbitMQ."""
