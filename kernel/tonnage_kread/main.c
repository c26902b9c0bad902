// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * tonnage_kread: one-sided RDMA operations that the kernel posts. The device file, and the devices
 * of RDMA.
 */

#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "internal.h"

static unsigned int abi = TKR_ABI;
module_param(abi, uint, 0444);
MODULE_PARM_DESC(abi, "number of the calls' layout; read only");

static long tkr_setup_call(struct tkr_session *s, void __user *at)
{
	struct tkr_setup a;
	int rc;

	if (copy_from_user(&a, at, sizeof(a)))
		return -EFAULT;
	rc = tkr_session_setup(s, &a);
	if ((!rc || rc == -EPROTO) && copy_to_user(at, &a, sizeof(a)))
		return -EFAULT;
	return rc;
}

static long tkr_lane_call(struct tkr_session *s, void __user *at)
{
	struct tkr_lane a;
	int rc;

	if (copy_from_user(&a, at, sizeof(a)))
		return -EFAULT;
	rc = tkr_session_address(s, &a);
	if (!rc && copy_to_user(at, &a, sizeof(a)))
		return -EFAULT;
	return rc;
}

static long tkr_connect_call(struct tkr_session *s, void __user *at)
{
	struct tkr_connect a;

	if (copy_from_user(&a, at, sizeof(a)))
		return -EFAULT;
	return tkr_session_connect(s, &a);
}

static long tkr_run_call(struct tkr_session *s, void __user *at)
{
	struct tkr_flow *flows;
	struct tkr_run a;
	size_t bytes;
	long rc;

	if (copy_from_user(&a, at, sizeof(a)))
		return -EFAULT;
	if (!a.flows || a.flows > TKR_LANES_MAX)
		return -EINVAL;
	if (a.stop_at && !access_ok((void __user *)u64_to_user_ptr(a.stop_at), 1))
		return -EFAULT;
	bytes = a.flows * sizeof(*flows);
	flows = memdup_user(u64_to_user_ptr(a.flows_at), bytes);
	if (IS_ERR(flows))
		return PTR_ERR(flows);
	rc = tkr_run(s, &a, flows);
	/*
	 * Those that were refused have no outputs, and nothing of theirs is copied but what they
	 * gave.
	 */
	if (copy_to_user(at, &a, sizeof(a)) ||
	    copy_to_user(u64_to_user_ptr(a.flows_at), flows, bytes))
		rc = -EFAULT;
	kfree(flows);
	return rc;
}

static long tkr_stats_call(struct tkr_session *s, void __user *at)
{
	struct tkr_stats a;
	int rc;

	if (copy_from_user(&a, at, sizeof(a)))
		return -EFAULT;
	rc = tkr_session_stats(s, &a);
	if (!rc && copy_to_user(at, &a, sizeof(a)))
		return -EFAULT;
	return rc;
}

static long tkr_hist_call(struct tkr_session *s, void __user *at)
{
	struct tkr_hist a;
	u64 *bins = NULL;
	int rc;

	if (copy_from_user(&a, at, sizeof(a)))
		return -EFAULT;
	if (a.bins_at) {
		bins = kvcalloc(TKR_BINS, sizeof(u64), GFP_KERNEL_ACCOUNT);
		if (!bins)
			return -ENOMEM;
	}
	rc = tkr_session_hist(s, &a, bins);
	if (!rc && bins && copy_to_user(u64_to_user_ptr(a.bins_at), bins, TKR_BINS * sizeof(u64)))
		rc = -EFAULT;
	if (!rc && copy_to_user(at, &a, sizeof(a)))
		rc = -EFAULT;
	kvfree(bins);
	return rc;
}

static long tkr_peek_call(struct tkr_session *s, void __user *at)
{
	struct tkr_peek a;

	if (copy_from_user(&a, at, sizeof(a)))
		return -EFAULT;
	return tkr_session_peek(s, &a);
}

static long tkr_ioctl(struct file *f, unsigned int cmd, unsigned long arg)
{
	struct tkr_session *s = f->private_data;
	void __user *at = (void __user *)arg;

	switch (cmd) {
	case TKR_IOC_SETUP:
		return tkr_setup_call(s, at);
	case TKR_IOC_LANE:
		return tkr_lane_call(s, at);
	case TKR_IOC_CONNECT:
		return tkr_connect_call(s, at);
	case TKR_IOC_RUN:
		return tkr_run_call(s, at);
	case TKR_IOC_STATS:
		return tkr_stats_call(s, at);
	case TKR_IOC_HIST:
		return tkr_hist_call(s, at);
	case TKR_IOC_PEEK:
		return tkr_peek_call(s, at);
	case TKR_IOC_STOP:
		return tkr_session_stop(s);
	default:
		return -ENOTTY;
	}
}

static int tkr_open(struct inode *inode, struct file *f)
{
	f->private_data = tkr_session_new();
	return f->private_data ? 0 : -ENOMEM;
}

static int tkr_release(struct inode *inode, struct file *f)
{
	struct tkr_session *s = f->private_data;

	tkr_session_close(s, false);
	tkr_session_put(s);
	return 0;
}

static const struct file_operations tkr_fops = {
	.owner = THIS_MODULE,
	.open = tkr_open,
	.release = tkr_release,
	.unlocked_ioctl = tkr_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice tkr_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "tonnage_kread",
	.fops = &tkr_fops,
	.mode = 0600,
};

static struct ib_client tkr_client;

static int tkr_add_device(struct ib_device *dev)
{
	struct tkr_device *d = kzalloc(sizeof(*d), GFP_KERNEL);

	if (!d)
		return -ENOMEM;
	d->dev = dev;
	mutex_init(&d->lock);
	INIT_LIST_HEAD(&d->sessions);
	refcount_set(&d->users, 1);
	init_completion(&d->unused);
	mutex_lock(&tkr_devices_lock);
	list_add(&d->entry, &tkr_devices);
	mutex_unlock(&tkr_devices_lock);
	ib_set_client_data(dev, &tkr_client, d);
	return 0;
}

/* Nothing of the module is on the device when this returns. */
static void tkr_remove_device(struct ib_device *dev, void *data)
{
	struct tkr_device *d = data;

	mutex_lock(&tkr_devices_lock);
	list_del(&d->entry);
	mutex_unlock(&tkr_devices_lock);
	mutex_lock(&d->lock);
	d->dead = true;
	while (!list_empty(&d->sessions)) {
		struct tkr_session *s = list_first_entry(&d->sessions, struct tkr_session, entry);

		/*
		 * It is in the list, and so its file is not closed yet, or waits for this lock to
		 * leave it.
		 */
		kref_get(&s->ref);
		list_del_init(&s->entry);
		mutex_unlock(&d->lock);
		tkr_session_close(s, true);
		tkr_session_put(s);
		mutex_lock(&d->lock);
	}
	mutex_unlock(&d->lock);
	/* Those that their owners are closing just now. */
	if (!refcount_dec_and_test(&d->users))
		wait_for_completion(&d->unused);
	kfree(d);
}

static struct ib_client tkr_client = {
	.name = "tonnage_kread",
	.add = tkr_add_device,
	.remove = tkr_remove_device,
};

static int __init tkr_init(void)
{
	int rc;

	BUILD_BUG_ON(sizeof(long) != 8);
	rc = ib_register_client(&tkr_client);
	if (rc)
		return rc;
	rc = misc_register(&tkr_misc);
	if (rc)
		ib_unregister_client(&tkr_client);
	return rc;
}

static void __exit tkr_exit(void)
{
	misc_deregister(&tkr_misc);
	ib_unregister_client(&tkr_client);
}

module_init(tkr_init);
module_exit(tkr_exit);

MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("tonnage: one-sided RDMA operations that the kernel posts");
MODULE_VERSION("1.0.0");
