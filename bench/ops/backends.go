package ops

import (
	"strconv"

	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/kernel/cpu"
)

type hostBackend struct {
	name, setting string
	backend       backend
}

// hostBackends are ours, and the reference for who asks for it by name.
func hostBackends(threads int) []hostBackend {
	ours := cpu.New(threads)
	return []hostBackend{
		{Ours, "kernel/cpu, " + ours.Instructions() + ", " + strconv.Itoa(threads) + " threads", ours},
		{"reference", "pure Go, one thread", kernel.Reference{}},
	}
}
