"""How sparse each layer is after a number of steps: ramp, allocation, floors."""
