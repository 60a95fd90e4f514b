"""The MQTT channel and the approval backchannel over the same broker."""
