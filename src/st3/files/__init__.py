"""Models as files: sparse and plain safetensors, ONNX, torch.export."""
