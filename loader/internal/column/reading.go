package column

import (
	"context"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// The functions of this file call a dataset from the loader's workers. They return a panic of the
// dataset as an internal error, which fails one batch. In a worker, the panic would end the
// process.

func gatherRows(
	ctx context.Context,
	ds robocache.Dataset,
	key string,
	rows []robocache.Row,
	dst []byte,
) (err error) {
	defer crash.Recover("loader", &err)
	return ds.Gather(ctx, key, rows, dst)
}

func gatherRagged(
	ctx context.Context, ds robocache.Dataset, key string, rows []robocache.Row,
) (data []byte, counts []int, err error) {
	defer crash.Recover("loader", &err)
	return robocache.GatherRagged(ctx, ds, key, rows)
}

func readTexts(
	ctx context.Context,
	ds robocache.Dataset,
	key string,
	rows []robocache.Row,
) (_ []string, err error) {
	defer crash.Recover("loader", &err)
	return ds.Text(ctx, key, rows)
}

func frameRefs(
	ctx context.Context,
	ds robocache.Dataset,
	key string,
	rows []robocache.Row,
	out []robocache.FrameRef,
) (err error) {
	defer crash.Recover("loader", &err)
	return ds.Frames(ctx, key, rows, out)
}
