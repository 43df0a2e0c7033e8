package main

/*
#include <stdint.h>
#include <stdlib.h>
*/
import "C"

import (
	"sync/atomic"
	"unsafe"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

// entry is one tensor or one text column of a batch. Tensors say where they lie, and by which number they are given back (C4).
type entry struct {
	Key    string          `json:"key"`
	DType  robocache.DType `json:"dtype"`
	Tensor int             `json:"tensor"`
	Shape  []int           `json:"shape,omitempty"`
	Ptr    uint64          `json:"ptr,omitempty"`
	NBytes int             `json:"nbytes,omitempty"`
	Values []string        `json:"values,omitempty"`
	Text   bool            `json:"text,omitempty"`
}

type batchReply struct {
	Batch    int64   `json:"batch"` // 0: there are no tensors, nothing is to be given back
	Rows     int     `json:"rows"`
	Epoch    int64   `json:"epoch"`
	Position int64   `json:"position"`
	Entries  []entry `json:"entries"`
}

// batch is memory on loan to the client: tensor by tensor it comes back.
type batch struct {
	left    atomic.Int64
	tensors []loan
}

// loan is one tensor; given back once.
type loan struct {
	done atomic.Bool
	free func()
}

func (b *batch) giveBack(i int) (last bool) {
	if i < 0 || i >= len(b.tensors) || !b.tensors[i].done.CompareAndSwap(false, true) {
		return false
	}
	b.tensors[i].free()
	return b.left.Add(-1) == 0
}

func (b *batch) close() error {
	for i := range b.tensors {
		b.giveBack(i)
	}
	return nil
}

//export robocache_release
func robocache_release(handle C.int64_t, tensor C.int32_t) {
	b, err := lookup[*batch](int64(handle), "release")
	if err == nil && b.giveBack(int(tensor)) {
		handles.remove(int64(handle))
	}
}

// answer collects entries and the memory behind them.
type answer struct {
	reply batchReply
	free  []func()
}

// add allocates one tensor on the C heap, zeroed, and gives its bytes.
func (a *answer) add(key string, dtype robocache.DType, shape []int) ([]byte, error) {
	n := dtype.Size()
	for _, d := range shape {
		n *= d
	}
	p := C.calloc(1, C.size_t(max(n, 1)))
	if p == nil {
		return nil, &robocache.Error{Class: robocache.ErrResourceLimit, Op: "allocate", Where: robocache.Where{"stream": key, "bytes": n}, Msg: "no memory for the values", Hint: "ask for fewer rows"}
	}
	a.tensor(key, dtype, shape, p, n, func() { C.free(p) })
	return unsafe.Slice((*byte)(p), n), nil
}

func (a *answer) tensor(key string, dtype robocache.DType, shape []int, p unsafe.Pointer, n int, free func()) {
	if shape == nil {
		shape = []int{}
	}
	a.reply.Entries = append(a.reply.Entries, entry{Key: key, DType: dtype, Tensor: len(a.free), Shape: shape, Ptr: uint64(uintptr(p)), NBytes: n})
	a.free = append(a.free, free)
}

func (a *answer) text(key string, dtype robocache.DType, values []string) {
	a.reply.Entries = append(a.reply.Entries, entry{Key: key, DType: dtype, Tensor: -1, Values: values, Text: true})
}

// batch adds what a loader made, under the given names where there are any.
func (a *answer) batch(b *loader.Batch) {
	a.reply.Rows, a.reply.Epoch, a.reply.Position = b.Rows, b.Epoch, b.Position
	t, s := 0, 0
	for i := range b.Fields {
		if b.Fields[i].Text() {
			a.text(b.Texts[s].Key, b.Texts[s].DType, b.Texts[s].Values)
			s++
			continue
		}
		n, v := t, &b.Tensors[t]
		a.tensor(v.Key, v.DType, v.Shape, unsafe.Pointer(unsafe.SliceData(v.Data)), len(v.Data), func() { b.ReleaseTensor(n) })
		t++
	}
}

// drop gives everything back where the answer is not handed over.
func (a *answer) drop() {
	for _, f := range a.free {
		f()
	}
	a.free = nil
}

// result hands the answer over.
func (a *answer) result() result {
	if a.reply.Entries == nil {
		a.reply.Entries = []entry{}
	}
	if len(a.free) == 0 {
		return result{value: a.reply}
	}
	b := &batch{tensors: make([]loan, len(a.free))}
	for i, f := range a.free {
		b.tensors[i].free = f
	}
	b.left.Store(int64(len(a.free)))
	h := handles.put(b)
	a.reply.Batch = h
	return result{value: a.reply, undo: func() {
		if o := handles.remove(h); o != nil {
			_ = o.close()
		}
	}}
}

func int64s(b []byte) []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}
