"""Millstream: a message broker for MQTT and AMQP with one topic space and one set of queues."""
