package loader

import (
	"io"
	"time"
)

// TryNext is Next without waiting: ok is false where the next batch is not finished, or another Next runs. It starts the work on
// it, so that a later call finds it. At the end of the epoch err is io.EOF.
func (l *Loader) TryNext() (b *Batch, ok bool, err error) {
	select {
	case l.taking <- struct{}{}:
		defer func() { <-l.taking }()
	default:
		return nil, false, nil
	}
	begin := time.Now()
	for {
		r, err := l.running(begin)
		if err != nil {
			return nil, false, err
		}
		if r.head == nil {
			select {
			case u, open := <-r.units:
				if !open {
					if l.endEpoch(r) {
						return nil, false, io.EOF
					}
					continue
				}
				r.head = u
			default:
				return nil, false, nil
			}
		}
		if !r.head.finished() {
			return nil, false, nil
		}
		b, again, err := l.take(r, begin)
		if !again {
			return b, err == nil, err
		}
	}
}

// finished says that nothing of the batch is still to come.
func (u *unit) finished() bool {
	select {
	case <-u.done:
		return true
	default:
		return false
	}
}
