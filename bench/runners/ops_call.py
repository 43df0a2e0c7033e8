"""One call from Python, on the CPU."""
import ops_common as ops
import ways_call

ways_call.register("cpu")

if __name__ == "__main__":
    ops.serve(ways_call.Called)
