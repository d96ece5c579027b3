"""NVIDIA Riva's speech recognition service, next to ours.

Programs written for Riva work unchanged. The messages are those of Riva's published client,
``nvidia-riva-client``, which is imported only by a server that offers the service.
"""
