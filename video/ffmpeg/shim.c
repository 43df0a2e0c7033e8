//go:build cgo

#include "internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <libavutil/avutil.h>
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>

const char *rc_version(void) { return av_version_info(); }

int rc_has_decoder(const char *name) { return avcodec_find_decoder_by_name(name) != NULL; }

void rc_error_text(int code, char *buf, int n) { av_strerror(code, buf, n); }

// dav1d prints a line per decoder at the next lower log level, and swscale one per context.
static void silence_log(void) { av_log_set_level(AV_LOG_FATAL); }

// allocate_frame allocates frames like libavcodec does. It records a failed allocation in the
// decoder.
static int allocate_frame(AVCodecContext *ctx, AVFrame *frame, int flags)
{
	int err = avcodec_default_get_buffer2(ctx, frame, flags);

	if (err == AVERROR(ENOMEM))
		((rc_decoder *)ctx->opaque)->lacks_memory = 1;
	return err;
}

// map_error returns the error of a call of libavcodec, or RC_ERR_MEMORY if a frame could not be
// allocated.
static int map_error(rc_decoder *d, int err)
{
	if (err >= 0 || err == AVERROR(EAGAIN) || !d->lacks_memory)
		return err;
	d->lacks_memory = 0;
	return RC_ERR_MEMORY;
}

int rc_open(const rc_config *cfg, rc_decoder **out)
{
	const AVCodec *codec = avcodec_find_decoder_by_name(cfg->codec);
	rc_decoder *d;
	int err;

	*out = NULL;
	silence_log();
	if (!codec)
		return RC_ERR_NO_DECODER;
	if (!(d = calloc(1, sizeof(*d))))
		return RC_ERR_MEMORY;
	d->ctx = avcodec_alloc_context3(codec);
	d->frame = av_frame_alloc();
	d->packet = av_packet_alloc();
	if (!d->ctx || !d->frame || !d->packet) {
		rc_close(d);
		return RC_ERR_MEMORY;
	}
	d->ctx->opaque = d;
	d->ctx->get_buffer2 = allocate_frame;
	d->rotation = cfg->rotation;
	if (cfg->extradata_size > 0) {
		d->ctx->extradata = av_mallocz((size_t)cfg->extradata_size + AV_INPUT_BUFFER_PADDING_SIZE);
		if (!d->ctx->extradata) {
			rc_close(d);
			return RC_ERR_MEMORY;
		}
		memcpy(d->ctx->extradata, cfg->extradata, cfg->extradata_size);
		d->ctx->extradata_size = cfg->extradata_size;
	}
	d->ctx->width = cfg->width;
	d->ctx->height = cfg->height;
	d->ctx->color_primaries = cfg->primaries;
	d->ctx->color_trc = cfg->transfer;
	d->ctx->colorspace = cfg->matrix;
	if (cfg->full_range)
		d->ctx->color_range = AVCOL_RANGE_JPEG;
	d->ctx->max_pixels = cfg->max_pixels;
	d->ctx->thread_count = 1;
	// At a drain, an H.264 decoder that started at a recovery point withholds frames that are
	// correct. The index knows which packets each frame needs, so all frames are requested.
	d->ctx->flags |= AV_CODEC_FLAG_OUTPUT_CORRUPT;
#ifdef __aarch64__
	// FFmpeg's NEON transform of MPEG-4 and JPEG rounds rows with one large coefficient differently
	// from C and x86. Bright blocks would differ by one level.
	d->ctx->idct_algo = FF_IDCT_SIMPLE;
#endif
	if (!strcmp(cfg->codec, "libdav1d")) {
		// One frame in, one frame out. In a build without one of these options, thread_count has
		// this effect.
		av_opt_set_int(d->ctx->priv_data, "max_frame_delay", 1, 0);
		av_opt_set_int(d->ctx->priv_data, "framethreads", 1, 0);
		av_opt_set_int(d->ctx->priv_data, "tilethreads", 1, 0);
	}
	if ((err = avcodec_open2(d->ctx, codec, NULL)) < 0) {
		rc_close(d);
		return err;
	}
	*out = d;
	return RC_OK;
}

void rc_close(rc_decoder *d)
{
	if (!d)
		return;
	rc_scratch_clear(&d->scratch);
	avcodec_free_context(&d->ctx);
	av_frame_free(&d->frame);
	av_packet_free(&d->packet);
	av_buffer_unref(&d->input);
	free(d);
}

const rc_frame *rc_frame_of(rc_decoder *d) { return &d->img; }

void rc_reorder(rc_decoder *d, int images)
{
	if (d->ctx->has_b_frames < images)
		d->ctx->has_b_frames = images;
}

int rc_send(rc_decoder *d, const uint8_t *data, int size, int64_t pts, int skip)
{
	size_t need;
	int err;

	if (size <= 0 || size > INT_MAX - AV_INPUT_BUFFER_PADDING_SIZE)
		return RC_ERR_SIZE;
	need = (size_t)size + AV_INPUT_BUFFER_PADDING_SIZE;
	// The decoder may still refer to the previous packet; it then keeps that buffer.
	if (!d->input || d->input->size < need || !av_buffer_is_writable(d->input)) {
		av_buffer_unref(&d->input);
		d->input = av_buffer_alloc(need < 65536 ? 65536 : need + need / 4);
		if (!d->input)
			return RC_ERR_MEMORY;
	}
	memcpy(d->input->data, data, size);
	// Decoders read damaged streams beyond their end. Zeros there end every code.
	memset(d->input->data + size, 0, AV_INPUT_BUFFER_PADDING_SIZE);
	d->packet->buf = av_buffer_ref(d->input);
	if (!d->packet->buf)
		return RC_ERR_MEMORY;
	d->packet->data = d->input->data;
	d->packet->size = size;
	d->packet->pts = pts;
	d->packet->dts = AV_NOPTS_VALUE;
	d->ctx->skip_frame = skip ? AVDISCARD_NONREF : AVDISCARD_DEFAULT;
	err = avcodec_send_packet(d->ctx, d->packet);
	av_packet_unref(d->packet);
	return map_error(d, err);
}

int rc_drain(rc_decoder *d) { return map_error(d, avcodec_send_packet(d->ctx, NULL)); }

void rc_flush(rc_decoder *d)
{
	av_frame_unref(d->frame);
	avcodec_flush_buffers(d->ctx);
}

static int is_full_range(const AVFrame *f)
{
	return f->color_range == AVCOL_RANGE_JPEG || f->format == AV_PIX_FMT_YUVJ420P
		   || f->format == AV_PIX_FMT_YUVJ422P || f->format == AV_PIX_FMT_YUVJ444P
		   || f->format == AV_PIX_FMT_YUVJ440P;
}

static int luma_bits(const AVPixFmtDescriptor *desc)
{
	if (desc->flags
		& (AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_PAL | AV_PIX_FMT_FLAG_BE | AV_PIX_FMT_FLAG_HWACCEL
		   | AV_PIX_FMT_FLAG_BITSTREAM))
		return 0;
	// The first plane must contain only luma samples, in the low bits.
	if (desc->comp[0].plane != 0 || desc->comp[0].shift != 0 || desc->comp[0].offset != 0
		|| desc->comp[0].step != (desc->comp[0].depth > 8 ? 2 : 1))
		return 0;
	return desc->comp[0].depth;
}

int rc_receive(rc_decoder *d)
{
	int err = avcodec_receive_frame(d->ctx, d->frame);
	const AVPixFmtDescriptor *desc;

	if (err == AVERROR(EAGAIN) || err == AVERROR_EOF)
		return RC_NONE;
	if (err < 0)
		return map_error(d, err);
	if (d->frame->width <= 0 || d->frame->height <= 0
		|| (int64_t)d->frame->width * d->frame->height > d->ctx->max_pixels)
		return RC_ERR_TOO_LARGE;
	if (d->frame->format != d->img.format || !d->img.format_name) {
		if (!(desc = av_pix_fmt_desc_get(d->frame->format)))
			return RC_ERR_FORMAT;
		d->img.format = d->frame->format;
		d->img.format_name = desc->name;
		d->img.luma_bits = luma_bits(desc);
	}
	d->img.width = d->frame->width;
	d->img.height = d->frame->height;
	d->img.pts = d->frame->pts;
	d->img.matrix = d->frame->colorspace;
	d->img.full_range = is_full_range(d->frame);
	d->img.planes_bytes =
		av_image_get_buffer_size(d->frame->format, d->frame->width, d->frame->height, 1);
	return RC_FRAME;
}

int rc_planes(rc_decoder *d, uint8_t *dst, int size)
{
	int n = av_image_copy_to_buffer(
		dst, size, (const uint8_t *const *)d->frame->data, d->frame->linesize, d->frame->format,
		d->frame->width, d->frame->height, 1);
	return n < 0 ? n : RC_OK;
}

int64_t rc_memory(rc_decoder *d)
{
	// About ten frames (references, spare frames of the pool, tables) and one fixed megabyte.
	int bytes = d->img.planes_bytes;
	if (bytes <= 0)
		bytes = d->ctx->width * d->ctx->height / 2 * 3;
	return (1 << 20) + 10 * (int64_t)bytes + rc_scratch_memory(&d->scratch)
		   + (d->input ? (int64_t)d->input->size : 0);
}

// copy_padded_rows copies the rows of a plane, and pads them with zeros to to_stride.
static void copy_padded_rows(
	uint8_t *to, int to_stride, const uint8_t *from, ptrdiff_t from_stride, int row_bytes, int rows)
{
	for (int y = 0; y < rows; y++, from += from_stride, to += to_stride) {
		memcpy(to, from, row_bytes);
		memset(to + row_bytes, 0, to_stride - row_bytes);
	}
}

int rc_keep(rc_decoder *d, const rc_layout *l, uint8_t *dst)
{
	const AVFrame *f = d->frame;

	if (f->format != l->format || f->width != l->width || f->height != l->height)
		return RC_ERR_FORMAT;
	for (int k = 0; k < l->count; k++) {
		uint8_t *to = dst + l->offset[k];
		size_t n = l->stride[k] * (size_t)l->rows[k];

		if (f->linesize[k] == l->stride[k] && l->row_bytes[k] == l->stride[k])
			rc_copy(to, f->data[k], n);
		else
			copy_padded_rows(
				to, l->stride[k], f->data[k], f->linesize[k], l->row_bytes[k], l->rows[k]);
		memset(to + n, 0, -n & 63);
	}
	return RC_OK;
}

int rc_pixel_format(const char *name)
{
	silence_log(); // this may be the process's first call of FFmpeg
	return av_get_pix_fmt(name);
}
