package cpu

import (
	"testing"

	"github.com/goatnote-inc/robocache/kernel/conform"
)

func TestConform(t *testing.T) {
	for _, threads := range []int{1, 3} {
		ran, failures := conform.Run(New(threads))
		for _, err := range failures {
			t.Error(err)
		}
		if ran < 500 {
			t.Errorf("%d vectors", ran)
		}
	}
}
