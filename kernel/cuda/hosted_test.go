package cuda

import (
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
)

// TestRegions: tensors in the same memory share it on the device too.
func TestRegions(t *testing.T) {
	one, other := make([]byte, 100), make([]byte, 50)
	at := func(b []byte) *kernel.Tensor { return &kernel.Tensor{DType: robocache.Uint8, Data: b} }
	list := regions([]*kernel.Tensor{at(one[10:60]), at(other), at(nil), at(one[40:100]), at(one[20:30])})
	if len(list) != 2 {
		t.Fatalf("%d regions", len(list))
	}
	lengths := map[int]bool{len(list[0].data): true, len(list[1].data): true}
	if !lengths[90] || !lengths[50] {
		t.Errorf("%v", lengths)
	}
}
