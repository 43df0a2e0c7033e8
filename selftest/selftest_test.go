package selftest

import (
	"context"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache/kernel"
)

// TestRun is selftest.T1 and T2 on this machine: what is present is correct, and what is missing
// has a reason.
func TestRun(t *testing.T) {
	results := Run(context.Background())
	parts := map[string]Result{}
	for _, r := range results {
		parts[strings.Fields(r.Part)[0]+" "+strings.Fields(r.Part)[1]] = r
		if r.Present && !r.OK || !r.Present && r.Detail == "" {
			t.Errorf("%+v", r)
		}
	}
	for _, part := range []string{
		"kernel reference",
		"kernel SIMD",
		"kernel CUDA",
		"decoder h264",
	} {
		if _, ok := parts[part]; !ok {
			t.Errorf("nothing is said of %s", part)
		}
	}
	if r := parts["kernel reference"]; !r.OK || r.Info["vectors"] == "" || r.Info["wrong"] != "0" {
		t.Errorf("%+v", r)
	}
	if !OK(results) {
		t.Error("not OK")
	}
}

// wrong changes one bit of each result.
type wrong struct{ kernel.Reference }

func (w wrong) Run(op kernel.Op) error {
	err := w.Reference.Run(op)
	if f, ok := op.(*kernel.FuseOp); ok && len(f.Out.Data) > 0 {
		f.Out.Data[0] ^= 1
	}
	return err
}

func TestWrongIsSeen(t *testing.T) {
	r := testVectors("kernel wrong", "a wrong one", map[string]string{}, wrong{})
	if !r.Present || r.OK || r.Info["wrong"] == "0" ||
		!strings.Contains(r.Detail, "vectors wrong; the first") {
		t.Errorf("%+v", r)
	}
	if OK([]Result{{Part: "decoder", Detail: "not there"}, r}) ||
		!OK([]Result{{Part: "decoder", Detail: "not there"}}) {
		t.Error("OK looks at the wrong parts")
	}
}
