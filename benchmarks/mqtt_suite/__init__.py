"""`./dev bench mqtt`: Millstream, mosquitto and NATS through the same MQTT scenarios."""
