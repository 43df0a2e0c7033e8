package convert

import (
	"sync"
	"testing"
	"time"
)

// What is ahead stays within its bytes, whatever the groups' sizes become; one alone always goes.
func TestRunway(t *testing.T) {
	r := newRunway(4, 100)
	var mu sync.Mutex
	inside, most, groups := int64(0), int64(0), 0
	landed := make(chan int64, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(landed)
		for i := range 40 {
			if !r.enter() {
				t.Error("closed")
			}
			size := int64(30)
			if i > 20 {
				size = 250 // above the limit alone
			}
			mu.Lock()
			groups++
			inside += size
			if i > 1 && size < 100 {
				most = max(most, inside)
			}
			if size > 100 && groups > 1 && i > 22 {
				t.Errorf("%d groups with one of %d bytes", groups, size)
			}
			mu.Unlock()
			r.landed(size)
			landed <- size
		}
	})
	for size := range landed {
		time.Sleep(time.Millisecond)
		mu.Lock()
		inside, groups = inside-size, groups-1
		mu.Unlock()
		r.leave(size)
	}
	wg.Wait()
	if most > 100 {
		t.Errorf("%d bytes inside", most)
	}
	if most < 60 {
		t.Errorf("only %d bytes inside: nothing is done ahead", most)
	}
	r = newRunway(4, 100)
	for range 4 {
		r.enter()
	}
	done := make(chan bool)
	go func() { done <- r.enter() }()
	r.close()
	if <-done {
		t.Error("a closed runway let one in")
	}
}
