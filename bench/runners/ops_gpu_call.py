"""One call from Python, on a GPU."""
import ops_common as ops
import ways_call

ways_call.register("cuda")

if __name__ == "__main__":
    ops.serve(ways_call.Called)
