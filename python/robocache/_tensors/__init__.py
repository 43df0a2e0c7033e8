"""Operations on tensors: from arrays of NumPy and torch to prepared operations of the engine, and torch's own operators."""
