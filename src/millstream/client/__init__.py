"""The MQTT client."""
